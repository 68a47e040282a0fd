"""How ``insert_int16_rescale`` makes each kind of operator legal."""
