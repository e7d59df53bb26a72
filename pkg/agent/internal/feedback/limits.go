package feedback

import (
	"errors"
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// Limits of the values of one manifest, beside those of the package jsonpath and
// [Config].MaxRawLength and of the budget of the work (docs/limits.md). Its share of the size depends on the
// number of manifests with feedback rules only, so that one manifest takes nothing away from another.
const (
	maxPathsOfManifest = 256
	maxVisits          = 1_000_000 // of a path
	maxValue           = 16 << 10  // bytes of a value
	maxSize            = 64 << 10  // bytes of the values of a manifest
	minSize            = 2 << 10   // bytes of the values of a manifest in a work with many
	maxSizeOfWork      = 512 << 10
	maxErrorText       = 4 << 10 // bytes of the error
	maxQuotedPath      = 256     // bytes of a path in an error
)

// room is how many bytes the values of a manifest may still have.
type room int

// room returns that of a manifest of a work in which this number of manifests have rules.
func (r *Reader) room(manifests int) room {
	return room(max(min(maxSize, max(minSize, maxSizeOfWork/max(manifests, 1))), 2*r.config.MaxRawLength))
}

// add subtracts the size of a value. The error says that it is too large.
func (left *room) add(name string, value *workv1.FieldValue) error {
	text := ""
	switch {
	case value.String != nil:
		text = *value.String
	case value.JsonRaw != nil: // has a limit of its own
		text = *value.JsonRaw
	}
	if value.String != nil && len(text) > maxValue {
		return fmt.Errorf("the value for %s has %d bytes, at most %d are reported", condition.Shorten(name, maxQuotedPath), len(text), maxValue)
	}
	if size := room(len(name) + len(text)); size > *left {
		return fmt.Errorf("the value for %s is left out: the values of the manifest are too large together", condition.Shorten(name, maxQuotedPath))
	} else {
		*left -= size
	}
	return nil
}

// joined returns errs as one error, cut to maxErrorText.
func joined(errs []error) error {
	err := utilerrors.NewAggregate(errs)
	if err == nil {
		return nil
	}
	if text := err.Error(); len(text) > maxErrorText {
		return errors.New(condition.Shorten(text, maxErrorText))
	}
	return err
}

// longerThan reports whether the JSON of value has more than limit bytes, or is about to. It visits
// no more of it than that takes: a value may be the same large one many times.
func longerThan(value any, limit int) bool {
	return remaining(value, limit) < 0
}

// remaining returns limit less a lower bound of the length of value's JSON, or a negative number.
func remaining(value any, limit int) int {
	switch value := value.(type) {
	case string:
		return limit - len(value) - len(`""`)
	case []any:
		limit -= len("[]")
		for _, item := range value {
			if limit = remaining(item, limit); limit < 0 {
				break
			}
		}
	case map[string]any:
		limit -= len("{}")
		for key, field := range value {
			if limit = remaining(field, limit-len(key)-len(`"":`)); limit < 0 {
				break
			}
		}
	default:
		limit--
	}
	return limit
}
