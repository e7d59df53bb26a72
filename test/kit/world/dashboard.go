package world

import (
	"fmt"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

// StartDashboard starts the dashboard of a hub. page returns the HTML of a path, as somebody sees it who may see all. It may be
// called from any goroutine.
func (w *World) StartDashboard(h *Hub) (page func(path string) (string, error)) {
	w.Helper()
	pages, err := h.Dashboard(hub.DashboardOptions{Address: "127.0.0.1:0"})
	kit.NoError(w, err)
	kit.Run(w, "dashboard", pages.Run)
	kit.Receive(w, "the dashboard listens", pages.Listening())
	token, ctx := w.viewer(), w.Context()
	return func(path string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pages.Addr()+path, nil)
		if err != nil {
			return "", err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }() // it was read
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		return string(body), err
	}
}

// viewer returns a token of somebody who may do all at the hub's API.
func (w *World) viewer() string {
	w.Helper()
	client, ctx, name := kubernetes.NewForConfigOrDie(w.Hub.REST()), w.Context(), metav1.ObjectMeta{Name: kit.Unique("viewer")}
	accounts := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, metav1.CreateOptions{})
	kit.NoError(w, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name.Name}},
	}, metav1.CreateOptions{})
	kit.NoError(w, err)
	answer, err := accounts.CreateToken(ctx, name.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	kit.NoError(w, err)
	return answer.Status.Token
}
