package budget

// Need says whether somebody who expects to spend estimate may begin: there must be something left of every limited dimension,
// and as much as is expected. Otherwise it returns the first dimension, by name, of which too little is left. What is reserved
// for others is not left. reference: flows-streams-budgets.md 6.7.
func (b Budget) Need(estimate map[string]int64) (dimension string, need, left int64, ok bool) {
	for _, dimension := range names(b.Amounts) {
		a := b.Amounts[dimension]
		need := max(estimate[dimension], 1)
		if a.spent() || a.hard() > 0 && a.Usage+a.Reserved+need > a.hard() {
			return dimension, need, a.left(), false
		}
	}
	return "", 0, 0, true
}

// left returns how much of a limited dimension is neither spent nor reserved.
func (a Amount) left() int64 {
	if a.spent() {
		return 0
	}
	return max(a.hard()-a.Usage-a.Reserved, 0)
}

// Left returns how much of a dimension is neither spent nor reserved, if it is limited.
func (b Budget) Left(dimension string) (left int64, limited bool) {
	a := b.Amounts[dimension]
	if a.hard() == 0 {
		return 0, false
	}
	return a.left(), true
}

// Reserve keeps amounts for somebody who begins. They are bounded by MaxAmount.
func (b Budget) Reserve(estimate map[string]int64) Budget {
	b.own()
	for dimension, n := range estimate {
		if n > 0 {
			a := b.Amounts[dimension]
			a.Reserved = min(a.Reserved+n, MaxAmount)
			b.Amounts[dimension] = a
		}
	}
	return b
}

// Unreserve gives back what was reserved, as far as it still is.
func (b Budget) Unreserve(amounts map[string]int64) Budget {
	b.own()
	for dimension, n := range amounts {
		a, known := b.Amounts[dimension]
		if !known || n <= 0 {
			continue
		}
		a.Reserved = max(a.Reserved-n, 0)
		b.put(dimension, a)
	}
	return b
}

// put keeps a, unless there is nothing to remember of it.
func (b *Budget) put(dimension string, a Amount) {
	if a == (Amount{}) {
		delete(b.Amounts, dimension)
	} else {
		b.Amounts[dimension] = a
	}
}

// Low says whether workers should spend less: a soft limit was gone over, or less than a tenth of a hard one is not spent yet.
// What is reserved is theirs, and does not count.
func (b Budget) Low() bool {
	for _, a := range b.Amounts {
		if a.soft() > 0 && a.Usage > a.soft() {
			return true
		}
		if a.hard() > 0 && (a.hard()-a.Usage)*10 < a.hard() {
			return true
		}
	}
	return false
}

// Remaining returns what somebody may still spend of each limited dimension, for whom own is reserved.
func (b Budget) Remaining(own map[string]int64) map[string]int64 {
	remaining := map[string]int64{}
	for dimension, a := range b.Amounts {
		if a.hard() > 0 {
			others := max(a.Reserved-own[dimension], 0)
			remaining[dimension] = max(a.hard()-a.Usage-others, 0)
		}
	}
	return remaining
}
