package main

import (
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/source"
)

// maxBody is the maximum size of a request in bytes; the manifests of a work have at most 512,000.
const maxBody = 1 << 20

//go:embed openapi.yaml
var openAPI []byte

// api serves the works of a client.
type api struct {
	client *source.Client
}

// newHandler returns the handler of all paths in openapi.yaml. If token is not empty, each
// request must have it; otherwise, each must be for a name of this machine, so that pages of
// other sites, which a browser on this machine shows, reach nothing.
func newHandler(client *source.Client, token string) http.Handler {
	a := &api{client: client}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI)
	})
	for pattern, handle := range a.routes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := admit(r, token); err != nil {
			writeError(w, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	})
}

func (a *api) routes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/works":                              a.list,
		"GET /v1/watch":                              a.watch,
		"POST /v1/clusters/{cluster}/works":          a.create,
		"GET /v1/clusters/{cluster}/works/{name}":    a.get,
		"DELETE /v1/clusters/{cluster}/works/{name}": a.delete,
	}
}

// admit returns why a request is refused.
func admit(r *http.Request, token string) error {
	if token != "" {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		wanted, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(wanted[:], got[:]) != 1 {
			return apierrors.NewUnauthorized("the request has no valid bearer token")
		}
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if !serve.IsLoopback(strings.Trim(host, "[]")) {
		return apierrors.NewUnauthorized(fmt.Sprintf("the request is for %q: without a token, only names of this machine are served", host))
	}
	return nil
}

func (a *api) create(w http.ResponseWriter, r *http.Request) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return apierrors.NewBadRequest("the Content-Type must be application/json")
	}
	work := &workv1.ManifestWork{}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(work); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the work has more than %d bytes", tooLarge.Limit))
		}
		return apierrors.NewBadRequest("decode the work: " + err.Error())
	}
	created, err := a.client.ManifestWorks(r.PathValue("cluster")).Create(r.Context(), work, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, created)
}

func (a *api) get(w http.ResponseWriter, r *http.Request) error {
	work, err := a.client.ManifestWorks(r.PathValue("cluster")).Get(r.Context(), r.PathValue("name"), metav1.GetOptions{})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, work)
}

// delete marks the work for deletion. It is there until its agent has deleted its objects.
func (a *api) delete(w http.ResponseWriter, r *http.Request) error {
	works, name := a.client.ManifestWorks(r.PathValue("cluster")), r.PathValue("name")
	if err := works.Delete(r.Context(), name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (a *api) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit := int64(0) // all
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.ParseInt(text, 10, 64); err != nil || limit < 1 {
			return apierrors.NewBadRequest(fmt.Sprintf("limit must be a number from 1, got %q", text))
		}
	}
	list, err := a.client.ManifestWorks(query.Get("cluster")).List(r.Context(), metav1.ListOptions{
		LabelSelector: query.Get("labelSelector"), Limit: limit, Continue: query.Get("continue")})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

func writeJSON(w http.ResponseWriter, code int, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
	return nil
}

// writeError writes an error as a Kubernetes API server does.
func writeError(w http.ResponseWriter, err error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	if body.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = writeJSON(w, int(body.Code), body)
}
