package kubeapi

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// discover answers /api, /apis, /apis/GROUP/VERSION and /version; nil for other paths.
func (s *Server) discover(r *http.Request) *http.Response {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version":
		return answer(r, http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
	case r.URL.Path == "/api":
		return answer(r, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		return answer(r, http.StatusOK, s.groups())
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(r, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(r, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		version := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		at := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == k.Group })
		switch {
		case k.Group == "":
		case at < 0:
			list.Groups = append(list.Groups, metav1.APIGroup{Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		case !slices.Contains(list.Groups[at].Versions, version):
			list.Groups[at].Versions = append(list.Groups[at].Versions, version)
		}
	}
	return list
}

func (s *Server) resources(r *http.Request, gv schema.GroupVersion) *http.Response {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.GroupVersion() != gv {
			continue
		}
		resource := metav1.APIResource{
			Name: k.Resource, SingularName: strings.ToLower(k.Kind), Kind: k.Kind, Namespaced: !k.Cluster,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		}
		list.APIResources = append(list.APIResources, resource)
		if k.Status {
			resource.Name += "/status"
			resource.Verbs = metav1.Verbs{"get", "patch", "update"}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	if len(list.APIResources) == 0 {
		return answer(r, http.StatusNotFound, notServed(r.URL.Path))
	}
	return answer(r, http.StatusOK, list)
}
