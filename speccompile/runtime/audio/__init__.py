"""Sounds for targets that hear.

wav         samples of a WAV file; `resample`: at another rate; `mel`: their log-mel features
reader      sounds of a call, in whatever form, to features; `examples`: features without a sound
rules       tokens that a transcript may have
segments    parts of a text between its times; `subtitles`: these as srt and vtt
long_form   transcription window by window; `transcript`: the whole text
transcribe  transcribing with an open bundle
"""
