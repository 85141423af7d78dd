# ddefuzz program v1
# inputs: x = normal; a = normal; b = normal; c = normal; d = normal; e = normal; f = normal
def program(x: Float32[Tensor, "u0=8 128 64"], a: Float32[Tensor, "64 64"], b: Float32[Tensor, "64 64"], c: Float32[Tensor, "64 64"], d: Float32[Tensor, "64 64"], e: Float32[Tensor, "256 64"], f: Float32[Tensor, "64 256"]):
    n = torch.nn.functional.layer_norm(x, [64])
    q = torch.nn.functional.linear(n, a)
    k = torch.nn.functional.linear(n, b)
    v = torch.nn.functional.linear(n, c)
    scores = torch.softmax(torch.matmul(q, torch.transpose(k, 1, 2)) * 0.125, 2)
    y = x + torch.nn.functional.linear(torch.matmul(scores, v), d)
    m = torch.nn.functional.layer_norm(y, [64])
    h = torch.nn.functional.gelu(torch.nn.functional.linear(m, e))
    return y + torch.nn.functional.linear(h, f)
