package applied

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/object"
)

// IntentAnnotation lists, on an AppliedManifestWork, the objects that were about to be applied when
// it was last written. Without it, a crash between applying an object and updating the status would
// leave an object that nothing refers to. Its value is JSON, group/version/resource → namespace →
// names. A long value is "gzip:" and the base64 of the JSON compressed with gzip.
const IntentAnnotation = "workwire.dev/intended-resources"

// plainIntent is the size in bytes from which the annotation is compressed.
const plainIntent = 16 * 1024

type intent map[string]map[string][]string

// encodeIntent returns the value of the annotation for refs.
func encodeIntent(refs []object.Ref) (string, error) {
	grouped := intent{}
	for _, ref := range refs {
		key := ref.Version + "/" + ref.Resource
		if ref.Group != "" {
			key = ref.Group + "/" + key
		}
		if grouped[key] == nil {
			grouped[key] = map[string][]string{}
		}
		grouped[key][ref.Namespace] = append(grouped[key][ref.Namespace], ref.Name)
	}
	plain, err := json.Marshal(grouped)
	if err != nil {
		return "", fmt.Errorf("encode intended resources: %w", err)
	}
	text, err := compress(plain, plainIntent)
	if err != nil {
		return "", fmt.Errorf("encode intended resources: %w", err)
	}
	return text, nil
}

// decodeIntent reverses encodeIntent. It returns an error for values that encodeIntent cannot
// return.
func decodeIntent(value string) ([]object.Ref, error) {
	plain, err := uncompress(value)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", IntentAnnotation, err)
	}
	var grouped intent
	if err := json.Unmarshal(plain, &grouped); err != nil {
		return nil, fmt.Errorf("annotation %s is not a list of resources: %w", IntentAnnotation, err)
	}
	var refs []object.Ref
	for key, namespaces := range grouped {
		gvr, err := parseResource(key)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", IntentAnnotation, err)
		}
		for namespace, names := range namespaces {
			for _, name := range names {
				if name == "" {
					return nil, fmt.Errorf("annotation %s: %s without a name", IntentAnnotation, key)
				}
				refs = append(refs, object.Ref{GroupVersionResource: gvr, Namespace: namespace, Name: name})
			}
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs, nil
}

func parseResource(key string) (schema.GroupVersionResource, error) {
	parts := strings.Split(key, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return schema.GroupVersionResource{}, errors.New("want group/version/resource, got " + key)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
}
