# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal, grad
def program(x: Float32[Tensor, "u0=5 3 4"]):
    y = x.transpose(0, 1).sum(-1)
    return y.sin()
