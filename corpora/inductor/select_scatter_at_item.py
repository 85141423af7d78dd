# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: n = sizes(2); x = normal; s = normal
def program(n: Int64[Tensor, "1"], x: Float32[Tensor, "4 4"], s: Float32[Tensor, "4"]):
    p = n[0].item()
    return x.select_scatter(s, 0, p) + 1
