"""The numbers of a stream from its key, with Python integers."""

MASK = (1 << 64) - 1


def mixed(bits):
    """Apply the finaliser of SplitMix64."""
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


def uniform(key, number):
    """Return number `number` of the stream, in [0, 1)."""
    first, second = (int(number) for number in key)
    inner = mixed((first + number * 0x9E3779B97F4A7C15) & MASK)
    return (mixed(second ^ inner) >> 11) / 2.0**53
