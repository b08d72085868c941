package budget

import (
	"regexp"

	"github.com/flowapi/flowapi/internal/domain/fault"
)

var name = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// at returns the place of a dimension in a request.
func at(pointer, dimension string) string { return pointer + "/" + fault.Part(dimension) }

// checkName refuses what no dimension is called.
func checkName(pointer, dimension string) error {
	if name.MatchString(dimension) {
		return nil
	}
	return fault.Invalid(fault.CodeValidationFailed, at(pointer, dimension),
		"The dimension %q must have a name of 1 to 64 letters, digits, underscores, dots, colons and hyphens.", fault.Readable(dimension))
}

// checkAmount refuses what cannot be counted.
func checkAmount(pointer, dimension string, n int64) error {
	if n < 0 || n > MaxAmount {
		return fault.Invalid(fault.CodeOutOfRange, at(pointer, dimension), "The amount of %s must be 0 to %d; it is %d.", dimension, int64(MaxAmount), n)
	}
	return nil
}

// checkAmounts refuses, by name, the first of dims that no budget can have.
func checkAmounts(pointer string, dims map[string]int64) error {
	for _, dimension := range names(dims) {
		if err := checkName(pointer, dimension); err != nil {
			return err
		}
		if err := checkAmount(pointer, dimension, dims[dimension]); err != nil {
			return err
		}
	}
	return nil
}
