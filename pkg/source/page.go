package source

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// continueToken says where the next page of a list begins, and which version of the works it lists.
type continueToken struct {
	Version   int64  `json:"v"`
	Namespace string `json:"ns"` // of the last work of the page before
	Name      string `json:"n"`
}

// encode returns the token for ListOptions.
func (t continueToken) encode() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // of strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseContinue parses a token; the zero token is that of the first page.
func parseContinue(text string) (t continueToken, err error) {
	if text == "" {
		return t, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && (t.Version < 0 || t.Namespace == "" || t.Name == "") {
		err = errors.New("it names no work")
	}
	if err != nil {
		return continueToken{}, apierrors.NewBadRequest("continue is not of a list of this source: " + err.Error())
	}
	return t, nil
}

// page returns the works of a sorted list from the token on, at most limit (0: all), with the token of
// the next page, and how many works are left for it.
func page(works []*workv1.ManifestWork, from continueToken, version, limit int64) (_ []*workv1.ManifestWork, next string, left int64) {
	if from.Name != "" {
		at, found := slices.BinarySearchFunc(works, from, func(w *workv1.ManifestWork, t continueToken) int {
			return cmp.Or(cmp.Compare(w.Namespace, t.Namespace), cmp.Compare(w.Name, t.Name))
		})
		if found {
			at++
		}
		works = works[at:]
	}
	if limit <= 0 || int64(len(works)) <= limit {
		return works, "", 0
	}
	left = int64(len(works)) - limit
	works = works[:limit]
	last := works[limit-1]
	return works, continueToken{version, last.Namespace, last.Name}.encode(), left
}

// at returns the works of a namespace, of all if it is empty, sorted, as they were at an earlier
// version; false if that is too long ago.
func (m *memory) at(namespace string, version int64) ([]*workv1.ManifestWork, bool) {
	m.mu.RLock()
	position, known := m.history.find(version, m.content.version)
	if !known {
		m.mu.RUnlock()
		return nil, false
	}
	then := map[types.UID]*workv1.ManifestWork{}
	from := m.content.works
	if namespace != "" {
		from = m.content.clusters[namespace]
	}
	for uid, r := range from {
		then[uid] = r.work
	}
	for i := m.history.count - 1; i >= position; i-- {
		ch := m.history.at(i)
		uid := ch.new.work.UID
		switch {
		case namespace != "" && ch.new.work.Namespace != namespace:
		case ch.old == nil:
			delete(then, uid)
		default:
			then[uid] = ch.old.work
		}
	}
	m.mu.RUnlock()
	works := make([]*workv1.ManifestWork, 0, len(then))
	for _, work := range then {
		works = append(works, work)
	}
	sortWorks(works)
	return works, true
}

func sortWorks(works []*workv1.ManifestWork) {
	slices.SortFunc(works, func(a, b *workv1.ManifestWork) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// checkPage returns an error for options that exclude each other, as on an API server.
func checkPage(opts metav1.ListOptions) error {
	switch {
	case opts.Continue != "" && opts.ResourceVersion != "" && opts.ResourceVersion != "0":
		return apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case opts.Continue != "" && opts.ResourceVersionMatch != "":
		return apierrors.NewBadRequest("resourceVersionMatch is forbidden with continue")
	}
	return nil
}
