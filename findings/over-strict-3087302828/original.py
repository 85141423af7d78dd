# ddefuzz program v1
# inputs: x0 = normal
def program(x0: Bool[Tensor, "u0=5"]):
    t0 = torch._decomp.decompositions.isin(x0, x0)
    return t0
