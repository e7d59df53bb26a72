package preview

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub/previews"
)

// Store stores a record on the set. It fails if there is another set of the name by now.
func (p *Plan) Store(ctx context.Context, r *fleet.Reader, record *previews.Record) error {
	value, err := record.Value()
	if err != nil {
		return err
	}
	err = r.AnnotateSet(ctx, p.Set, metav1.Preconditions{UID: &p.Set.UID}, workv1alpha1.PreviewedAnnotationKey, value)
	return cli.APIError("annotate the set "+p.Set.Name, err)
}

// annotatedWith returns the annotations of the set with this record.
func (p *Plan) annotatedWith(value string) map[string]string {
	annotations := maps.Clone(p.Set.Annotations)
	if annotations == nil {
		annotations = make(map[string]string, 1)
	}
	annotations[workv1alpha1.PreviewedAnnotationKey] = value
	return annotations
}
