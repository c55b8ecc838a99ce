"""The paper: encoder, attention, decoder, objective, search, and the captioner that joins them.

For a first reading: `attention`, `decoder`, `objective`, `search`. May import `satlib.data` and
what is below it.
"""
