// Command apidocs writes docs/api.md, the reference of the API types, from their sources in pkg/apis: fields in
// the order of the source, with types, defaults, validation and comments.
//
//	go run ./hack/apidocs > docs/api.md
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// folders are the packages below pkg/apis, in the order of the page.
var folders = []string{"work/v1", "work/v1alpha1", "workwire/v1alpha1", "cluster/v1", "cluster/v1beta1", "cluster/v1beta2", "cluster/v1alpha1"}

const intro = `# API reference

The types of the hub's and the clusters' APIs, field by field. This page is made from their Go sources by ` + "`make generate`" + `. The
definitions are in ` + "`deploy/crds`" + `; ` + "`kubectl explain manifestwork.spec`" + ` shows the same on a cluster. Types of Kubernetes itself are not
described here.

A field is optional unless it is marked as required. Validation and defaults are those of the API server.
`

func main() {
	if err := write(os.Stdout, "."); err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
}

// apiType is a type of an API group.
type apiType struct {
	name    string
	spec    *ast.TypeSpec
	doc     string
	markers []string
}

// apiPackage is a package below pkg/apis.
type apiPackage struct {
	folder, group, version string
	types                  []apiType // in the order of the sources, objects first
}

// write writes the page for the repository in root.
func write(w io.Writer, root string) error {
	var packages []apiPackage
	known := map[string]bool{} // "folder.Type"
	for _, folder := range folders {
		p, err := read(root, folder)
		if err != nil {
			return err
		}
		packages = append(packages, p)
		for _, t := range p.types {
			known[folder+"."+t.name] = true
		}
	}
	var out strings.Builder
	out.WriteString(intro)
	for _, p := range packages {
		fmt.Fprintf(&out, "\n## %s/%s\n", p.group, p.version)
		for _, t := range p.types {
			p.writeType(&out, t, known)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// read parses the sources of a package.
func read(root, folder string) (apiPackage, error) {
	p := apiPackage{folder: folder, version: filepath.Base(folder)}
	files, err := filepath.Glob(filepath.Join(root, "pkg/apis", folder, "*.go"))
	if err != nil || len(files) == 0 {
		return p, fmt.Errorf("no sources in %s: %w", folder, err)
	}
	var parts []apiType
	for _, path := range files {
		base := filepath.Base(path)
		if strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "zz_") {
			continue
		}
		fileSet := token.NewFileSet()
		file, err := parser.ParseFile(fileSet, path, nil, parser.ParseComments)
		if err != nil {
			return p, err
		}
		for _, m := range markersIn(file.Comments, 0, file.End()) {
			if group, ok := strings.CutPrefix(m, "groupName="); ok {
				p.group = group
			}
		}
		for _, t := range typesOf(file) {
			if isObject(t.spec) {
				p.types = append(p.types, t)
			} else {
				parts = append(parts, t)
			}
		}
	}
	p.types = append(p.types, parts...)
	if p.group == "" {
		return p, fmt.Errorf("%s has no +groupName", folder)
	}
	return p, nil
}

// typesOf returns the exported types of a file, without lists of objects.
func typesOf(file *ast.File) (types []apiType) {
	end := file.Name.End()
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if ok && general.Tok == token.TYPE {
			for _, s := range general.Specs {
				spec := s.(*ast.TypeSpec)
				if spec.Name.IsExported() && !embeds(spec, "ListMeta") {
					doc, markers := split(general.Doc.Text())
					markers = append(markersIn(file.Comments, end, general.Pos()), markers...)
					slices.Sort(markers)
					types = append(types, apiType{spec.Name.Name, spec, doc, slices.Compact(markers)})
				}
			}
		}
		end = decl.End()
	}
	return types
}

// markersIn returns the markers of the comments between two positions, without their "+".
func markersIn(comments []*ast.CommentGroup, from, to token.Pos) (markers []string) {
	for _, group := range comments {
		if group.Pos() >= from && group.End() <= to {
			for _, c := range group.List {
				if m, ok := strings.CutPrefix(c.Text, "// +"); ok {
					markers = append(markers, m)
				}
			}
		}
	}
	return markers
}

// split separates the text of a comment from its markers.
func split(comment string) (doc string, markers []string) {
	var text []string
	for line := range strings.Lines(comment) {
		if m, ok := strings.CutPrefix(line, "+"); ok {
			markers = append(markers, strings.TrimSpace(m))
			continue
		}
		text = append(text, line)
	}
	return strings.TrimSpace(strings.Join(text, "")), markers
}

func embeds(spec *ast.TypeSpec, name string) bool {
	structure, ok := spec.Type.(*ast.StructType)
	return ok && slices.ContainsFunc(structure.Fields.List, func(f *ast.Field) bool {
		selector, ok := f.Type.(*ast.SelectorExpr)
		return ok && len(f.Names) == 0 && selector.Sel.Name == name
	})
}

func isObject(spec *ast.TypeSpec) bool { return embeds(spec, "TypeMeta") }

func (p *apiPackage) writeType(out *strings.Builder, t apiType, known map[string]bool) {
	fmt.Fprintf(out, "\n### %s (%s)\n\n%s\n", t.name, p.folder, prose(t.doc))
	if facts := validation(t.markers); facts != "" {
		fmt.Fprintf(out, "\n%s.\n", facts)
	}
	structure, ok := t.spec.Type.(*ast.StructType)
	if !ok {
		fmt.Fprintf(out, "\nIt is a %s.\n", p.typeText(t.spec.Type, known))
		return
	}
	rows := ""
	for _, f := range structure.Fields.List {
		rows += p.row(f, known)
	}
	if rows != "" {
		out.WriteString("\n| field | type | meaning |\n|---|---|---|\n" + rows)
	}
}

// row returns the line of a field; empty for one that JSON does not show.
func (p *apiPackage) row(f *ast.Field, known map[string]bool) string {
	tag := ""
	if f.Tag != nil {
		tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
	}
	name, _, _ := strings.Cut(tag, ",")
	text := p.typeText(f.Type, known)
	if name == "" && len(f.Names) == 0 {
		if strings.HasSuffix(text, "TypeMeta") || strings.HasSuffix(text, "RawExtension") {
			return ""
		}
		name = "(inline)"
	}
	if name == "" || name == "-" {
		return ""
	}
	doc, markers := split(f.Doc.Text())
	meaning := []string{strings.Join(strings.Fields(prose(doc)), " ")}
	if slices.Contains(markers, "required") {
		meaning = append(meaning, "Required.")
	}
	if facts := validation(markers); facts != "" {
		meaning = append(meaning, facts+".")
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, text, strings.ReplaceAll(strings.Join(meaning, " "), "|", `\|`))
}

// typeText returns a type as text, with a link if the page describes it.
func (p *apiPackage) typeText(e ast.Expr, known map[string]bool) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return p.typeText(e.X, known)
	case *ast.ArrayType:
		return "list of " + p.typeText(e.Elt, known)
	case *ast.MapType:
		return "map of " + p.typeText(e.Key, known) + " to " + p.typeText(e.Value, known)
	case *ast.SelectorExpr:
		alias := fmt.Sprint(e.X)
		for _, folder := range folders {
			if strings.ReplaceAll(folder, "/", "") == alias && known[folder+"."+e.Sel.Name] {
				return link(folder, e.Sel.Name)
			}
		}
		return alias + "." + e.Sel.Name
	case *ast.Ident:
		if known[p.folder+"."+e.Name] {
			return link(p.folder, e.Name)
		}
		return e.Name
	default:
		return "object"
	}
}

// link returns a link to the heading of a type.
func link(folder, name string) string {
	return fmt.Sprintf("[%s](#%s-%s)", name, strings.ToLower(name), strings.ReplaceAll(folder, "/", ""))
}

// prose returns a comment as Markdown: a link of Go's documentation is code, and < no tag.
func prose(doc string) string {
	doc = strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(doc)
	for {
		open := strings.Index(doc, "[")
		end := strings.Index(doc[max(open, 0):], "]") + max(open, 0)
		if open < 0 || end <= open {
			return doc
		}
		doc = doc[:open] + "`" + doc[open+1:end] + "`" + doc[end+1:]
	}
}

// facts are the markers that the page shows, with their words.
var facts = []struct{ marker, words string }{
	{"kubebuilder:default", "Default: "}, {"default", "Default: "}, {"kubebuilder:validation:Enum", "One of: "}, {"kubebuilder:validation:Minimum", "Minimum: "},
	{"kubebuilder:validation:MinItems", "At least items: "}, {"kubebuilder:validation:MaxItems", "At most items: "},
	{"kubebuilder:validation:MinLength", "Minimum length: "}, {"kubebuilder:validation:MaxLength", "Maximum length: "},
	{"kubebuilder:validation:Pattern", "Pattern: "}, {"kubebuilder:validation:XValidation:rule", "Rule: "},
}

// validation returns defaults and validation in words, empty if there are none.
func validation(markers []string) string {
	var texts []string
	for _, fact := range facts {
		for _, m := range markers {
			value, ok := strings.CutPrefix(m, fact.marker+"=")
			if !ok {
				value, ok = strings.CutPrefix(m, fact.marker+":=")
			}
			if ok {
				texts = append(texts, fact.words+code(fact.marker, value))
			}
		}
	}
	return strings.Join(texts, ". ")
}

// code returns the value of a marker. A rule is told by its message.
func code(marker, value string) string {
	if strings.HasSuffix(marker, ":rule") {
		if _, message, ok := strings.Cut(value, `,message="`); ok {
			message, _, _ = strings.Cut(message, `"`)
			return message
		}
	}
	return "`" + strings.ReplaceAll(strings.Trim(value, "`\""), ";", "`, `") + "`"
}
