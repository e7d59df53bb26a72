// Package yamlfile reads files with one YAML document, and refuses those in which more follows. The YAML library reads
// the first document and says nothing of what comes after it, so that half of a policy could be in force.
//
//	err := yamlfile.Decode(data, &config)
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

var errMore = errors.New("something follows the first document: write one document, in one mapping")

// ToJSON returns a document as JSON. Duplicate keys are an error, and so is what follows it, but for documents that
// are empty.
func ToJSON(data []byte) ([]byte, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	return text, one(data)
}

// Decode reads a document into a pointer, by the JSON names of its fields. Unknown fields are errors too.
func Decode(data []byte, into any) error {
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return err
	}
	return one(data)
}

// one returns an error if data has something after its first document.
func one(data []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(data))
	for first := true; ; first = false {
		var value any
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil: // not of the first one, which has been read
			return fmt.Errorf("%w: %w", errMore, err)
		case value != nil && !first:
			return errMore
		}
	}
}
