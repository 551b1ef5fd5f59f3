"""Vectorised decoding kernels: bytes of many messages to Arrow arrays, compiled once by numba.

``faults`` names what can be wrong; ``scan`` walks JSON; ``text`` turns JSON strings into values; ``xxh64`` is Spark's
hash; ``image`` and ``rows`` hold what was decoded; the wire formats build on these.
"""
