// client-go's shared informer under the load of B13. It prints one line when its cache has synced and its handler has
// heard of all pods: seconds, pods, and its memory before and after in KB; and one at SIGTERM: how many changes were
// heard, and how late, in ms, the median and the 99th percentile came.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func resident() int {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb
		}
	}
	return 0
}

// strip leaves out who manages which fields, as ours does.
func strip(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip))
	pods := factory.Core().V1().Pods()
	var lock sync.Mutex
	var late []float64
	heard := 0
	handler, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		// As controllers do: the key is what goes into their queues.
		AddFunc: func(added any) {
			if key, err := cache.MetaNamespaceKeyFunc(added); err == nil && key != "" {
				heard++
			}
		},
		UpdateFunc: func(_, changed any) {
			at, err := strconv.ParseInt(changed.(*corev1.Pod).Annotations["bench/at"], 10, 64)
			if err != nil {
				return
			}
			lock.Lock()
			late = append(late, float64(time.Now().UnixNano()-at)/1e6)
			lock.Unlock()
		},
	})
	if err != nil {
		panic(err)
	}
	before, begun := resident(), time.Now()
	factory.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", pods.Informer().HasSyncedChecker(), handler.HasSyncedChecker()) {
		panic("not synced")
	}
	fmt.Printf("synced %.4f %d %d %d\n", time.Since(begun).Seconds(), heard, before, resident())
	<-ctx.Done()
	lock.Lock()
	defer lock.Unlock()
	sort.Float64s(late)
	part := func(of float64) float64 {
		if len(late) == 0 {
			return 0
		}
		return late[int(of*float64(len(late)-1))]
	}
	fmt.Printf("events %d %.3f %.3f\n", len(late), part(0.5), part(0.99))
}
