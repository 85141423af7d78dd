# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: b = normal; x = normal; w = normal
def program(b: Float32[Tensor, "u1=3"], x: Float32[Tensor, "1 4"], w: Float32[Tensor, "4 u1=3"]):
    return torch.addmm(b, x, w)
