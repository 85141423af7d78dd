# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: n = sizes(3); x = normal
def program(n: Int64[Tensor, "1"], x: Float32[Tensor, "4"]):
    size = n[0].item()
    return x.expand(size, 4)
