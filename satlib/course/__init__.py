"""What the notebooks need beyond attention and captioning themselves: a world to translate, a deconvnet, the marginal, an explorer."""
