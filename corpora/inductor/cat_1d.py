# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0"], y: Float32[Tensor, "u1=3"]):
    return torch.cat([x, y]) + 1
