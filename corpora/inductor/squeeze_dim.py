# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "u0=1 4"]):
    return x.squeeze(0) + 1
