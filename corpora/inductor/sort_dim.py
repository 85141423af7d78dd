# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return torch.sort(x, dim=0)
