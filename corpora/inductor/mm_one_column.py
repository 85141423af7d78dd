# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: x = normal; w = normal
def program(x: Float32[Tensor, "4 1"], w: Float32[Tensor, "u0 3"]):
    k = torch.cat([w, torch.ones(2, 3)]).view(1, -1)
    return torch.mm(x, k)
