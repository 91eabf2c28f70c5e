"""Sounds for targets that hear; `runtime/transcription` transcribes them.

wav         samples of a WAV file; `resample`: at another rate; `mel`: their log-mel features
reader      sounds of a call, in whatever form, to features; `examples`: features without a sound
rules       tokens that a transcript may have
"""
