package previews

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// maxRecord bounds a record in bytes of JSON; one of workctl has a tenth of it.
const maxRecord = 4096

// Record is what a preview has found. It is the JSON value of the annotation [workv1alpha1.PreviewedAnnotationKey].
type Record struct {
	// Template is the hash of the template, as in the annotation workwire.dev/revision-hash.
	Template string `json:"template"`
	// Overrides is what [OverridesHash] returned for the WorkOverrides of the set.
	Overrides string `json:"overrides,omitempty"`
	// Time is when the last cluster answered.
	Time metav1.Time `json:"time"`
	// By is the user.
	By string `json:"by,omitempty"`
	// Clusters is the number of clusters that the placements of the set select and that may get works, Asked how many of them
	// were asked, and Answered how many of these have answered.
	Clusters int `json:"clusters"`
	Asked    int `json:"asked"`
	Answered int `json:"answered"`
	// Away is the number of clusters that are away, asked or not.
	Away int `json:"away"`
	// Failed is the number of clusters of which nothing is known for another reason: overrides fail, or the agent cannot tell.
	Failed int `json:"failed"`
	// Refused is the number of clusters on which some object would be refused.
	Refused int `json:"refused"`
	// Changed and Deleted are the most objects that would be created or changed, and deleted, on one cluster.
	Changed int `json:"changed"`
	Deleted int `json:"deleted"`
}

// RecordOf returns the record in the annotations of a set, nil if there is none.
func RecordOf(annotations map[string]string) (*Record, error) {
	value := annotations[workv1alpha1.PreviewedAnnotationKey]
	if value == "" {
		return nil, nil
	}
	r := &Record{}
	err := errors.New("it is too long")
	if len(value) <= maxRecord {
		if err = json.Unmarshal([]byte(value), r); err == nil {
			err = r.validate()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", workv1alpha1.PreviewedAnnotationKey, err)
	}
	return r, nil
}

// validate returns an error if the numbers contradict each other.
func (r *Record) validate() error {
	switch {
	case r.Template == "":
		return errors.New("it has no template")
	case min(r.Clusters, r.Away, r.Failed, r.Refused, r.Changed, r.Deleted) < 0:
		return errors.New("it has a negative number")
	case r.Asked > r.Clusters || r.Answered > r.Asked || r.Refused > r.Answered:
		return errors.New("more clusters were asked than there are, or have answered or refused than were asked")
	}
	return nil
}

// Value returns the value of the annotation.
func (r *Record) Value() (string, error) {
	data, err := json.Marshal(r)
	return string(data), err
}

// OverridesHash returns a hash of what the WorkOverrides of a set say, empty if there are none. The values that they
// refer to are not part of it.
func OverridesHash(list []*workwirev1alpha1.WorkOverride) string {
	if len(list) == 0 {
		return ""
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *workwirev1alpha1.WorkOverride) int { return cmp.Compare(a.UID, b.UID) })
	hash := sha256.New()
	for _, o := range list {
		fmt.Fprintf(hash, "%s %d\n", o.UID, o.Generation)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}
