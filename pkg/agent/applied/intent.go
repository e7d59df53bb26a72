package applied

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/object"
)

// IntentAnnotation names, on an AppliedManifestWork, the objects that were about
// to be applied when it was last written, so that a crash between applying an
// object and recording it leaves nothing that nobody remembers. Its value is
// JSON, group/version/resource → namespace → names, or, when that is long, gzip
// of it in base64 after "gzip:".
const IntentAnnotation = "workwire.dev/intended-resources"

const (
	gzipPrefix = "gzip:"
	// plainIntent is the size from which the annotation is compressed.
	plainIntent = 16 * 1024
	// maxIntent bounds what reading an annotation may unpack to: a work has at
	// most 500 KiB of manifests, and an annotation is far below.
	maxIntent = 4 * 1024 * 1024
)

type intent map[string]map[string][]string

// encodeIntent gives the annotation's value for refs.
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
		return "", fmt.Errorf("name the intended resources: %w", err)
	}
	if len(plain) < plainIntent {
		return string(plain), nil
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(plain); err != nil {
		return "", fmt.Errorf("compress the intended resources: %w", err)
	}
	if err := writer.Close(); err != nil {
		return "", fmt.Errorf("compress the intended resources: %w", err)
	}
	return gzipPrefix + base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// decodeIntent reads what encodeIntent gave. It refuses what it could not have
// given.
func decodeIntent(value string) ([]object.Ref, error) {
	plain := []byte(value)
	if packed, ok := strings.CutPrefix(value, gzipPrefix); ok {
		reader, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", IntentAnnotation, err)
		}
		if plain, err = io.ReadAll(io.LimitReader(reader, maxIntent+1)); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", IntentAnnotation, err)
		}
		if len(plain) > maxIntent {
			return nil, fmt.Errorf("annotation %s unpacks to more than %d bytes", IntentAnnotation, maxIntent)
		}
	}
	var grouped intent
	if err := json.Unmarshal(plain, &grouped); err != nil {
		return nil, fmt.Errorf("annotation %s is no list of resources: %w", IntentAnnotation, err)
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
	sortRefs(refs)
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
