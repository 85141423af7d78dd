# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal; w = normal; b = normal
def program(x: Float32[Tensor, "u0=3 u1=5 4"], w: Float32[Tensor, "6 4"], b: Float32[Tensor, "6"]):
    return torch.nn.functional.linear(x, w, b)
