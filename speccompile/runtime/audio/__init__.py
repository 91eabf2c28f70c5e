"""Sounds for targets that hear.

wav       samples of a WAV file
resample  samples at another rate
mel       log-mel features of samples
reader    sounds of a call, in whatever form, to features
rules     tokens that a transcript may have
examples  features without a sound, for proofs and measurements
"""
