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
)

// FormatFlag is the flag -o of a command. Its zero value prints a table.
type FormatFlag struct {
	value   Format
	allowed []Format
}

// Add adds the flag -o with these formats to cmd, and its completion. The first one is the default.
func (f *FormatFlag) Add(cmd *cobra.Command, formats ...Format) {
	f.value, f.allowed = formats[0], formats
	names := make([]string, len(formats))
	for i, format := range formats {
		names[i] = string(format)
	}
	cmd.Flags().VarP(f, "output", "o", "output format: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
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

// Set sets the format. It returns an error if the command does not have it.
func (f *FormatFlag) Set(text string) error {
	if !slices.Contains(f.allowed, Format(text)) {
		return fmt.Errorf("must be one of %v", f.allowed)
	}
	f.value = Format(text)
	return nil
}

// WriteJSON writes v as indented JSON or, for the format YAML, as YAML.
func WriteJSON(w io.Writer, format Format, v any) error {
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

// WriteObjects writes objects of the API as JSON, YAML or names. One object is written as itself if
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
