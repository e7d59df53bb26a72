package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// Format is an output format, the value of -o.
type Format string

// Formats.
const (
	// Table is text for people.
	Table Format = "table"
	// Wide is Table with more columns.
	Wide Format = "wide"
	// JSON and YAML are whole objects.
	JSON Format = "json"
	YAML Format = "yaml"
	// Name is one kind/name on a line.
	Name Format = "name"
	// JSONPath is what a template of kubectl's JSONPath makes of the JSON. The value of the flag is
	// jsonpath=TEMPLATE, and so is its Format.
	JSONPath Format = "jsonpath"
)

// FormatFlag is the flag -o of a command. Its zero value prints a table.
type FormatFlag struct {
	value   Format
	allowed []Format
}

// Add adds the flag -o with these formats to cmd, and its completion. The first one is the default.
func (f *FormatFlag) Add(cmd *cobra.Command, formats ...Format) {
	f.value, f.allowed = formats[0], formats
	cmd.Flags().VarP(f, "output", "o", "output format: "+f.names())
	names := strings.Split(strings.ReplaceAll(f.names(), "TEMPLATE", ""), ", ")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

// names lists the allowed formats.
func (f *FormatFlag) names() string {
	names := make([]string, len(f.allowed))
	for i, format := range f.allowed {
		if names[i] = string(format); format == JSONPath {
			names[i] += "=TEMPLATE"
		}
	}
	return strings.Join(names, ", ")
}

var _ pflag.Value = (*FormatFlag)(nil)

// Format returns the chosen format.
func (f *FormatFlag) Format() Format {
	if f.value == "" {
		return Table
	}
	return f.value
}

// String returns the chosen format.
func (f *FormatFlag) String() string { return string(f.Format()) }

// Type returns the type that the help shows.
func (f *FormatFlag) Type() string { return "format" }

// Set sets the format. It returns an error if the command does not have it, or a template is invalid.
func (f *FormatFlag) Set(text string) error {
	name, template, templated := strings.Cut(text, "=")
	if format := Format(name); !slices.Contains(f.allowed, format) || templated != (format == JSONPath) {
		return fmt.Errorf("must be one of %s", f.names())
	}
	if templated {
		if _, err := parseJSONPath(template); err != nil {
			return err
		}
	}
	f.value = Format(text)
	return nil
}

// parseJSONPath parses a template as kubectl does: a field that an object does not have is empty.
func parseJSONPath(template string) (*jsonpath.JSONPath, error) {
	parsed := jsonpath.New("output").AllowMissingKeys(true)
	if err := parsed.Parse(template); err != nil {
		return nil, fmt.Errorf("parse the template %q, which is as {.items[*].metadata.name}: %w", template, err)
	}
	return parsed, nil
}

// writeJSONPath writes what a template makes of the JSON of v, without a line break at the end, as kubectl does.
func writeJSONPath(w io.Writer, template string, v any) error {
	parsed, err := parseJSONPath(template)
	if err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	var plain any
	if err := apijson.Unmarshal(data, &plain); err != nil { // which keeps whole numbers
		return fmt.Errorf("encode the output: %w", err)
	}
	if err := parsed.Execute(w, plain); err != nil {
		return fmt.Errorf("execute the template %q: %w", template, err)
	}
	return nil
}

// WriteJSON writes v as indented JSON, as YAML, or as its JSONPath template says.
func WriteJSON(w io.Writer, format Format, v any) error {
	if template, ok := strings.CutPrefix(string(format), string(JSONPath)+"="); ok {
		return writeJSONPath(w, template, v)
	}
	var (
		data []byte
		err  error
	)
	if format == YAML {
		data, err = yaml.Marshal(v)
	} else {
		data, err = json.MarshalIndent(v, "", "    ")
		data = append(data, '\n')
	}
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// WriteObjects writes objects of the API as JSON, YAML, by a JSONPath template, or as names. One object is written as itself if
// single is true; else the objects are the items of a List. The objects must have a kind. Managed
// fields are left out, as kubectl does. It changes the objects.
func WriteObjects(w io.Writer, format Format, single bool, objects ...runtime.Object) error {
	for _, object := range objects {
		if accessor, err := meta.Accessor(object); err == nil {
			accessor.SetManagedFields(nil)
		}
	}
	if format == Name {
		return writeNames(w, objects)
	}
	if single && len(objects) == 1 {
		return WriteJSON(w, format, objects[0])
	}
	list := struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta  `json:"metadata"`
		Items           []runtime.Object `json:"items"`
	}{TypeMeta: metav1.TypeMeta{Kind: "List", APIVersion: "v1"}, Items: objects}
	if list.Items == nil {
		list.Items = []runtime.Object{}
	}
	return WriteJSON(w, format, list)
}

func writeNames(w io.Writer, objects []runtime.Object) error {
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return fmt.Errorf("name an object: %w", err)
		}
		kind := object.GetObjectKind().GroupVersionKind()
		name := strings.ToLower(kind.Kind)
		if kind.Group != "" {
			name += "." + kind.Group
		}
		if _, err := fmt.Fprintf(w, "%s/%s\n", name, accessor.GetName()); err != nil {
			return err
		}
	}
	return nil
}
