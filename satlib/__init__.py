"""Show, Attend and Tell (Xu et al., 2015), from photograph to caption to the map of where the model looked.

The modules follow the paper:

=========================  ==================================================================
text, datasets             captions, vocabularies, and the collections they come from (5)
images, encoders           photographs to annotation vectors a_1..a_L (3.1.1)
features, batching         annotation vectors on disk; batches of captions of one length (4.3)
attention, decoder         energies, weights, context vectors; the LSTM (3.1.2)
objectives, training       doubly stochastic attention (4.2.1); the training procedure (4.3)
decoding, metrics          greedy, sampling, beam search; BLEU and METEOR (5)
captioner, overlay, plots  a trained model; its attention drawn over the photograph (5.4)
=========================  ==================================================================
"""

__version__ = "0.1.0"
