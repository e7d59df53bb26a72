package strategy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// maxFieldManager is the maximum number of characters that the API server accepts.
const maxFieldManager = 128

// clean removes the fields of a manifest that are not for the cluster, and returns the field
// manager that it names.
func clean(desired *unstructured.Unstructured) (fieldManager string, err error) {
	dropNullTimestamps(desired.Object)
	metadata, _ := desired.Object["metadata"].(map[string]any)
	for _, key := range []string{"uid", "creationTimestamp", "managedFields", "selfLink"} {
		delete(metadata, key)
	}
	if options, ok := metadata["options"]; ok {
		delete(metadata, "options")
		if fieldManager, err = declaredFieldManager(options); err != nil {
			return "", err
		}
	}
	return fieldManager, mergeStringData(desired)
}

// dropNullTimestamps removes creationTimestamp: null, which encoders of typed objects leave behind,
// at every level.
func dropNullTimestamps(value any) {
	switch value := value.(type) {
	case map[string]any:
		if timestamp, ok := value["creationTimestamp"]; ok && timestamp == nil {
			delete(value, "creationTimestamp")
		}
		for _, field := range value {
			dropNullTimestamps(field)
		}
	case []any:
		for _, item := range value {
			dropNullTimestamps(item)
		}
	}
}

// declaredFieldManager returns the field manager that metadata.options names.
func declaredFieldManager(options any) (string, error) {
	fields, ok := options.(map[string]any)
	if !ok {
		return "", errors.New("metadata.options must be an object")
	}
	value, ok := fields["fieldManager"]
	if !ok {
		return "", nil
	}
	manager, ok := value.(string)
	if !ok || manager == "" {
		return "", errors.New("metadata.options.fieldManager must be a string that is not empty")
	}
	return manager, validateFieldManager("metadata.options.fieldManager", manager)
}

func validateFieldManager(field, manager string) error {
	if length := utf8.RuneCountInString(manager); length > maxFieldManager {
		return fmt.Errorf("%s has %d characters; at most %d are allowed", field, length, maxFieldManager)
	}
	for _, char := range manager {
		if char == utf8.RuneError || !unicode.IsPrint(char) {
			return fmt.Errorf("%s %q has a character that is not printable", field, manager)
		}
	}
	return nil
}

// mergeStringData merges a Secret's stringData into data, as the API server does, so that it can be
// compared with the live object.
func mergeStringData(desired *unstructured.Unstructured) error {
	kind := desired.GroupVersionKind()
	plain, ok := desired.Object["stringData"].(map[string]any)
	if !ok || kind.Kind != "Secret" || kind.Group != "" {
		return nil
	}
	if desired.Object["data"] == nil {
		desired.Object["data"] = make(map[string]any, len(plain))
	}
	data, ok := desired.Object["data"].(map[string]any)
	if !ok {
		return errors.New("data must be an object")
	}
	for key, value := range plain {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("stringData.%s must be a string", key)
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(text))
		if other, ok := data[key]; ok && other != encoded {
			return fmt.Errorf("data.%s and stringData.%s contradict each other", key, key)
		}
		data[key] = encoded
	}
	delete(desired.Object, "stringData")
	return nil
}

// recreateOnImmutable reads the annotation of that name.
func recreateOnImmutable(desired *unstructured.Unstructured) (bool, error) {
	value, ok := desired.GetAnnotations()[workv1.RecreateAnnotationKey]
	if ok && value != workv1.RecreateOnImmutable {
		return false, fmt.Errorf("annotation %s is %q: it must be %s, or absent", workv1.RecreateAnnotationKey, value, workv1.RecreateOnImmutable)
	}
	return ok, nil
}
