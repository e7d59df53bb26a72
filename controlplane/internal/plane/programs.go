package plane

import (
	"strconv"
	"strings"
	"time"
)

// Names of the programs of a control plane. The binary runs the program under whose name it was
// started (argv[0]).
const (
	Etcd              = "etcd"
	Kine              = "kine"
	KubeAPIServer     = "kube-apiserver"
	HubAPIServer      = "hub-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// program is one process of a control plane.
type program struct {
	name string
	args []string
	// input is its standard input, which is not in any list of processes.
	input string
	// user and groups identify it to the API server; without a user it has no kubeconfig.
	user   string
	groups []string
	// grace limits the time from SIGTERM until it ends.
	grace time.Duration
}

// The names of the sockets end in a port because etcd requires one in every URL that it advertises.
// They are relative to the working directory of all programs because the path of a socket is
// limited to about 100 bytes.
const (
	etcdURL     = "unix://etcd.sock:0"
	etcdPeerURL = "unix://etcd-peer.sock:0"
	memberName  = "controlplane"
)

// quotaBytes is the size at which etcd refuses writes. A benchmark can exceed the default of 2 GiB
// between two compactions.
const quotaBytes = 8 << 30

func etcd(fsync bool) program {
	return program{name: Etcd, grace: 3 * time.Second, args: []string{
		"--name=" + memberName,
		"--data-dir=etcd",
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + etcdPeerURL,
		"--initial-advertise-peer-urls=" + etcdPeerURL,
		"--initial-cluster=" + memberName + "=" + etcdPeerURL,
		"--quota-backend-bytes=" + strconv.Itoa(quotaBytes),
		"--unsafe-no-fsync=" + strconv.FormatBool(!fsync),
		"--log-level=warn",
	}}
}

// kine serves the database at endpoint on etcd's socket.
func kine(endpoint string) program {
	return program{name: Kine, grace: 5 * time.Second, input: endpoint}
}

// datastore is the program that keeps the data of c.
func datastore(c Config) program {
	if c.Datastore != "" {
		return kine(c.Datastore)
	}
	return etcd(c.Fsync)
}

func apiServer(role Role, address string, port int) program {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + address,
		"--advertise-address=127.0.0.1", // unused: there is no endpoint reconciler
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=pki/apiserver.crt",
		"--tls-private-key-file=pki/apiserver.key",
		"--client-ca-file=pki/ca.crt",
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=pki/service-account.key",
		"--service-account-signing-key-file=pki/service-account.key",
		"--profiling=false",
	}
	if role == Hub {
		return program{name: HubAPIServer, args: args, grace: 5 * time.Second}
	}
	return program{name: KubeAPIServer, grace: 5 * time.Second, args: append(args,
		"--service-cluster-ip-range=10.96.0.0/16",
		// The kubernetes Service has no endpoints: they must not be on loopback.
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",
	)}
}

// hubControllers are the controllers that the API of a hub needs. All others concern pods, nodes
// and volumes, which a hub does not have. So do the ServiceAccount and the ConfigMap of authorities that Kubernetes makes in each
// namespace: on a hub, each cluster would cost two more objects.
var hubControllers = []string{
	"certificatesigningrequest-cleaner-controller",
	"certificatesigningrequest-signing-controller",
	"clusterrole-aggregation-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"serviceaccount-token-controller",
	"validatingadmissionpolicy-status-controller",
}

func controllers(role Role) []program {
	enabled := "*,-node-ipam-controller"
	if role == Hub {
		enabled = strings.Join(hubControllers, ",")
	}
	limits := []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
	list := []program{{
		name: ControllerManager, user: "system:kube-controller-manager", groups: []string{"system:masters"}, grace: 3 * time.Second,
		args: append([]string{
			"--kubeconfig=pki/" + ControllerManager + ".kubeconfig",
			"--controllers=" + enabled,
			"--leader-elect=false",
			"--secure-port=0",
			"--root-ca-file=pki/ca.crt",
			"--service-account-private-key-file=pki/service-account.key",
			"--cluster-signing-cert-file=pki/ca.crt",
			"--cluster-signing-key-file=pki/ca.key",
			"--profiling=false",
		}, limits...),
	}}
	if role == Hub {
		return list
	}
	return append(list,
		program{name: Scheduler, user: "system:kube-scheduler", grace: 3 * time.Second, args: append([]string{
			"--kubeconfig=pki/" + Scheduler + ".kubeconfig",
			"--leader-elect=false",
			"--secure-port=0",
			"--profiling=false",
		}, limits...)},
		program{name: Kwok, user: "kwok", groups: []string{"system:masters"}, grace: 3 * time.Second, args: []string{
			"--kubeconfig=pki/" + Kwok + ".kubeconfig",
			"--config=stages.yaml",
			"--manage-nodes-with-annotation-selector=" + kwokNode + "=" + fake, // kubelets report the others
			"--cidr=10.244.0.1/16",
			"--node-lease-duration-seconds=40",
		}},
	)
}
