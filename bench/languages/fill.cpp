// Fills a map with strings in insert_all(), and keeps it.
#include <string>
#include <unistd.h>
#include <unordered_map>

static std::unordered_map<int, std::string> all;

__attribute__((noinline)) static void insert_all()
{
	for (int i = 0; i < 400000; i++)
		all[i] = std::string(100, 'a' + i % 26);
}

int main()
{
	insert_all();
	for (;;)
		pause();
}
