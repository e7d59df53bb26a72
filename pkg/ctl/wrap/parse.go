package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json" // integers stay as they are

	"github.com/workwire/workwire/pkg/runtime/yamlfile"
	"github.com/workwire/workwire/pkg/wire"
)

// maxInput is the maximum size of a file in bytes.
const maxInput = 64 << 20

// maxListDepth is how many lists may be within one another.
const maxListDepth = 8

// Manifest is an object of the input.
type Manifest struct {
	// Origin says where the object is from: the file, and the number of the document in it.
	Origin string
	// Object is the object.
	Object *unstructured.Unstructured
}

func (m *Manifest) String() string {
	return fmt.Sprintf("%s: %s %s", m.Origin, m.Object.GetKind(), m.Object.GetName())
}

// Read returns the objects of files and directories, in their order; "-" is stdin. Of a directory it
// reads the files *.yaml, *.yml and *.json, sorted by name, and with recursive those of the
// directories in it. Its error names every invalid document.
func Read(paths []string, stdin io.Reader, recursive bool) ([]Manifest, error) {
	var all []Manifest
	var errs []error
	for _, path := range paths {
		files := []string{path}
		if path != "-" {
			var err error
			if files, err = filesOf(path, recursive); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		for _, file := range files {
			data, err := readFile(file, stdin)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			name := file
			if file == "-" {
				name = "stdin"
			}
			manifests, err := Parse(name, data)
			all, errs = append(all, manifests...), append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// filesOf returns path, or the files of the directory at path.
func filesOf(path string, recursive bool) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != path && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)):
			files = append(files, file)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: the directory has no file *.yaml, *.yml or *.json", path)
	}
	return files, err
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // it was only read
		stdin = file
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("%s: more than %d bytes", path, maxInput)
	}
	return data, err
}

// Parse returns the objects of a file with YAML documents, or with JSON values one after another. Lists are replaced by their
// items; empty documents are left out. Its error names every invalid document as file, document
// number and line. name is the file's name in errors.
func Parse(name string, data []byte) ([]Manifest, error) {
	var all []Manifest
	var errs []error
	if strings.HasPrefix(strings.ToLower(filepath.Base(name)), "kustomization.") {
		return nil, fmt.Errorf("%s: is no manifest but input of kustomize: use kubectl kustomize DIR | workctl wrap -f -", name)
	}
	for i, d := range split(data) {
		objects := values(d.text)
		for j, text := range objects {
			origin := fmt.Sprintf("%s, document %d (line %d)", name, i+1, d.line)
			if len(objects) > 1 {
				origin += fmt.Sprintf(", value %d", j+1)
			}
			manifests, err := parseDocument(origin, text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", origin, err))
			}
			all = append(all, manifests...)
		}
	}
	return all, errors.Join(errs...)
}

// document is a part of a file, and the number of its first line.
type document struct {
	text []byte
	line int
}

// split splits a YAML file into documents, at lines that start with --- or ..., and leaves out those
// without content.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var documents []document
	current := document{line: 1}
	end := func() {
		if hasContent(current.text) {
			documents = append(documents, current)
		}
	}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		marker, rest := separator(text)
		if !marker {
			current.text = append(current.text, text...)
			continue
		}
		end()
		current = document{line: line, text: bytes.Clone(rest)}
	}
	end()
	return documents
}

// separator reports whether a line separates documents, and returns what of it belongs to the next
// one. That has a line break in place of the marker, so that lines count the same.
func separator(line []byte) (bool, []byte) {
	text := bytes.TrimRight(line, "\r\n")
	if len(text) < 3 || string(text[:3]) != "---" && string(text[:3]) != "..." {
		return false, nil
	}
	if rest := text[3:]; len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return false, nil
	}
	return true, append(append([]byte(nil), text[3:]...), '\n')
}

// hasContent reports whether text has a line that is neither empty nor a comment.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] != '#' {
			return true
		}
	}
	return false
}

// values returns the JSON values that a document has one after another, as kubectl reads them; the document itself if it
// is none of that kind.
func values(text []byte) [][]byte {
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		return [][]byte{text}
	}
	var all [][]byte
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil: // YAML in braces
			return [][]byte{text}
		}
		all = append(all, value)
	}
}

func parseDocument(origin string, text []byte) ([]Manifest, error) {
	raw, err := yamlfile.ToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("is no YAML: %w", err)
	}
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return nil, fmt.Errorf("is no YAML: %w", err)
	}
	if value == nil {
		return nil, nil
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		return nil, errors.New("is no object: want apiVersion, kind and metadata")
	}
	return flatten(origin, object, raw, 0)
}

// flatten returns the items of a list, or the object itself if it is none. raw is the object as
// JSON.
func flatten(origin string, object map[string]any, raw []byte, depth int) ([]Manifest, error) {
	items, hasItems := object["items"].([]any)
	kind, _ := object["kind"].(string)
	if isList := kind == "List" || hasItems && strings.HasSuffix(kind, "List"); !isList {
		if wire.TooDeep(raw) {
			return nil, fmt.Errorf("is nested deeper than %d levels, and would not be applied", wire.MaxManifestDepth)
		}
		m := &unstructured.Unstructured{}
		if err := identityError(object, m.UnmarshalJSON(raw)); err != nil {
			return nil, err
		}
		return []Manifest{{Origin: origin, Object: m}}, nil
	}
	if depth == maxListDepth {
		return nil, fmt.Errorf("has lists in lists, more than %d within one another", maxListDepth)
	}
	var all []Manifest
	var errs []error
	for i, item := range items {
		within := fmt.Sprintf("%s, item %d", origin, i+1)
		of, isObject := item.(map[string]any)
		if !isObject {
			errs = append(errs, fmt.Errorf("item %d is no object", i+1))
			continue
		}
		raw, err := json.Marshal(of)
		if err == nil {
			var manifests []Manifest
			manifests, err = flatten(within, of, raw, depth+1)
			all = append(all, manifests...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("item %d %w", i+1, err))
		}
	}
	return all, errors.Join(errs...)
}

// identityError returns what is missing or wrong in the fields that identify an object, or err.
func identityError(object map[string]any, err error) error {
	for _, key := range []string{"apiVersion", "kind"} {
		if text, _ := object[key].(string); text == "" {
			return fmt.Errorf("has no %s", key)
		}
	}
	meta, _ := object["metadata"].(map[string]any)
	if generated, _ := meta["generateName"].(string); generated != "" {
		return errors.New("has a generateName: a manifest needs a name, so that it is the same object each time it is applied")
	}
	if name, _ := meta["name"].(string); name == "" {
		return errors.New("has no metadata.name that is text")
	}
	return err
}
