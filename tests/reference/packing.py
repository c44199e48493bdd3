"""Best-fit decreasing, written for reading: the longest document first, each into the fullest row that has room."""


def best_fit_decreasing(lengths: list[int], context_length: int) -> list[list[int]]:
    """Which documents share a row; of equally full rows, the one that was filled last. None may be too long."""
    rows: list[list[int]] = []  # in the order in which they were filled last
    for document in sorted(range(len(lengths)), key=lambda document: -lengths[document]):
        room = [context_length - sum(lengths[other] for other in row) for row in rows]
        fitting = [i for i in range(len(rows)) if room[i] >= lengths[document]]
        row = rows.pop(min(fitting, key=lambda i: (room[i], -i))) if fitting else []
        rows.append([*row, document])
    return sorted(sorted(row) for row in rows)
