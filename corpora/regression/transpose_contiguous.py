# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "u0 8"]):
    return x.t().contiguous().sum(0)
