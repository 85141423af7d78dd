# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: i = index(4)
def program(i: Int64[Tensor, "6 u0=1"]):
    z = torch.full((6, 4), 0.0)
    return z.scatter(1, i, 1.0)
