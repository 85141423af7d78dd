# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "u0 u1=4 3"]):
    y = x.permute(1, 0, 2).reshape(-1, 3)
    return y * 2
