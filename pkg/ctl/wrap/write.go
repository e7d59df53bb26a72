package wrap

import (
	"encoding/json"
	"fmt"
	"io"

	utiljson "k8s.io/apimachinery/pkg/util/json" // integers stay as they are
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Write writes works for kubectl apply, as YAML documents or, if format is "json", as a List in
// JSON.
func Write(out io.Writer, works []*workv1.ManifestWork, format string) error {
	items := make([]map[string]any, 0, len(works))
	for _, work := range works {
		raw, err := json.Marshal(work)
		if err != nil {
			return fmt.Errorf("encode the work %s: %w", work.Name, err)
		}
		var item map[string]any
		if err := utiljson.Unmarshal(raw, &item); err != nil {
			return fmt.Errorf("encode the work %s: %w", work.Name, err)
		}
		delete(item, "status")
		if meta, ok := item["metadata"].(map[string]any); ok {
			delete(meta, "creationTimestamp")
		}
		items = append(items, item)
	}
	if format == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	for _, item := range items {
		text, err := yaml.Marshal(item)
		if err != nil {
			return fmt.Errorf("encode a work: %w", err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
