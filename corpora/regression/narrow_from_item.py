# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: n = sizes(3); x = normal
def program(n: Int64[Tensor, "1"], x: Float32[Tensor, "12 2"]):
    start = n[0].item()
    return x.narrow(0, start, 4)
