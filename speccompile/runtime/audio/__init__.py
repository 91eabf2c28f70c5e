"""Sounds for targets that hear.

wav         samples of a WAV file
resample    samples at another rate
mel         log-mel features of samples
reader      sounds of a call, in whatever form, to features
rules       tokens that a transcript may have
segments    parts of a text between its times
long_form   transcription window by window
transcript  the whole text
transcribe  transcribing with an open bundle
subtitles   segments as text with times, srt and vtt
examples    features without a sound, for proofs and measurements
"""
