"""The decoders in plain Python: what a format is, to be read, and what decodes logs that compiling would not pay for.

They give what the compiled :mod:`ticdc_lab.codecs.kernel` gives, faults and their places included, which tests hold.
"""
