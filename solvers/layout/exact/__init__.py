"""`exact-layout`: the best layout, with a certificate of how good it is."""
