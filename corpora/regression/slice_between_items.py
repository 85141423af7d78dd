# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: n = sizes(2, 5); x = normal
def program(n: Int64[Tensor, "2"], x: Float32[Tensor, "8 3"]):
    a, b = n.tolist()
    part = x[a:b]
    return part.sum(0)
