// Package feedback reads values from live objects according to the feedback rules of a work, for
// the statusFeedback of its manifests.
//
//	reader := feedback.New(feedback.Config{RawJSON: true})
//	values, err := reader.Values(nil, manifest.FeedbackRules, live, manifestsWithRules)
//
// It sends no requests and has no state except for parsed paths. The same object always results in
// the same values in the same order, so that an unchanged object causes no publish.
// docs/feedback.md is the guide for users.
package feedback

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/jsonpath"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	defaultMaxRawLength = 1024
	// maxParsed is the maximum number of parsed paths in the cache.
	maxParsed = 1024
)

// Config configures [New].
type Config struct {
	// RawJSON reports objects, lists and other values that are not integers, strings or booleans as
	// JSON text (feature gate RawFeedbackJsonString), and several matches of a path as one JSON
	// list. Without it, such a value is an error, and of several matches the first is reported.
	RawJSON bool
	// MaxRawLength is the maximum length in bytes of a value of type JsonRaw. Default 1024.
	MaxRawLength int
}

// Reader reads feedback values. It is safe for concurrent use.
type Reader struct {
	config Config
	parsed *lru.Cache // string → *jsonpath.Path
}

// New returns a Reader.
func New(config Config) *Reader {
	if config.MaxRawLength <= 0 {
		config.MaxRawLength = defaultMaxRawLength
	}
	return &Reader{config: config, parsed: lru.New(maxParsed)}
}

// Values returns the values of obj that rules request, in the order of the rules and of the paths
// of a rule. A missing value or null is omitted without an error. Values returns those that it
// found even if others failed. The text of the error is that of the only failure, or "[a, b]" for
// several, without duplicates. manifests is the number of manifests of the work that have feedback
// rules: they share the size of its values. Values does not modify obj and does not panic, whatever
// obj contains.
func (r *Reader) Values(b *budget.Budget, rules []workv1.FeedbackRule, obj *unstructured.Unstructured, manifests int) ([]workv1.FeedbackValue, error) {
	var values []workv1.FeedbackValue
	var errs []error
	b.Start()
	defer b.Stop()
	left, paths := r.room(manifests), 0
	add := func(name, path string) {
		if paths++; paths > maxPathsOfManifest {
			return
		}
		found, err := r.value(name, path, obj, b)
		if err == nil && found != nil {
			err = left.add(name, found)
		}
		if err != nil {
			errs = append(errs, err)
		} else if found != nil {
			values = append(values, workv1.FeedbackValue{Name: name, Value: *found})
		}
	}
	kind := obj.GroupVersionKind()
	for _, rule := range rules {
		switch rule.Type {
		case workv1.WellKnownStatusType:
			known := workv1.WellKnownStatus(kind)
			if known == nil {
				errs = append(errs, fmt.Errorf("cannot find the wellknown statuses for resource with gvk %s", kind))
			}
			for _, value := range known {
				add(value.Name, value.Path)
			}
		case workv1.JSONPathsType:
			for _, path := range rule.JsonPaths {
				if path.Version != "" && path.Version != kind.Version {
					errs = append(errs, fmt.Errorf("version set in the path %s is not matched for the related resource", path.Name))
					continue
				}
				add(path.Name, path.Path)
			}
		default:
			errs = append(errs, fmt.Errorf("unknown feedback rule type %q: it must be WellKnownStatus or JSONPaths", rule.Type))
		}
	}
	if paths > maxPathsOfManifest {
		errs = append(errs, fmt.Errorf("%d values are requested, of which the first %d are read", paths, maxPathsOfManifest))
	}
	return values, joined(errs)
}

// value returns the value of one path, or nil if the path does not match.
func (r *Reader) value(name, path string, obj *unstructured.Unstructured, b *budget.Budget) (*workv1.FieldValue, error) {
	found, err := r.find(name, path, obj.Object, b)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if len(found) > 1 && r.config.RawJSON {
		return r.raw(name, found)
	}
	switch first := found[0].(type) {
	case nil:
		return nil, nil // no value
	case int64:
		return &workv1.FieldValue{Type: workv1.Integer, Integer: &first}, nil
	case string:
		return &workv1.FieldValue{Type: workv1.String, String: &first}, nil
	case bool:
		return &workv1.FieldValue{Type: workv1.Boolean, Boolean: &first}, nil
	default:
		if r.config.RawJSON {
			return r.raw(name, first)
		}
		return nil, fmt.Errorf("the type %s of the value for %s is not found", reflect.TypeOf(first), name)
	}
}

// raw returns a value as compact JSON with sorted keys.
func (r *Reader) raw(name string, value any) (*workv1.FieldValue, error) {
	var encoded []byte
	if !longerThan(value, r.config.MaxRawLength) {
		var err error
		if encoded, err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("failed to encode the value for %s: it is no JSON", name)
		}
	}
	if len(encoded) == 0 || len(encoded) > r.config.MaxRawLength {
		return nil, fmt.Errorf("the length of returned json raw string for name %s is larger than the maximum length %d",
			name, r.config.MaxRawLength)
	}
	text := string(encoded)
	return &workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &text}, nil
}

// find returns all values of object that match an expression without its braces. A missing field
// matches nothing. Errors contain name, the name of the feedback value.
func (r *Reader) find(name, expression string, object map[string]any, b *budget.Budget) (found []any, err error) {
	path, err := r.parse(expression)
	if err != nil {
		return nil, fmt.Errorf("failed to parse json path %s of %s with error: %w", condition.Shorten(expression, maxQuotedPath), name, err)
	}
	exceeded := b.Run(maxVisits, func(allowed int) (int, bool) {
		left := jsonpath.Budget(allowed)
		found, err = path.Find(object, &left)
		return allowed - int(left), errors.Is(err, jsonpath.ErrBudget)
	})
	if err = cmp.Or(exceeded, err); err != nil {
		return nil, fmt.Errorf("failed to find value for %s with error: %w", name, err)
	}
	return found, nil
}

func (r *Reader) parse(expression string) (*jsonpath.Path, error) {
	if known, ok := r.parsed.Get(expression); ok {
		return known.(*jsonpath.Path), nil
	}
	path, err := jsonpath.Parse(expression)
	if err == nil {
		r.parsed.Add(expression, path)
	}
	return path, err
}
