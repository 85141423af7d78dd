# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: n = sizes(2); x = normal
def program(n: Int64[Tensor, "1"], x: Float32[Tensor, "4 4"]):
    p = n[0].item()
    return torch.select(x, 0, p) + 1
