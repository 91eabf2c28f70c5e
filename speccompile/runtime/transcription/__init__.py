"""Transcription of sounds of any length with an open bundle.

transcribe  transcribing with an open bundle
long_form   transcription window by window; `transcript`: the whole text
segments    parts of a text between its times; `subtitles`: these as srt and vtt
"""
