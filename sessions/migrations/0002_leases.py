from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0001_initial")]

    operations = []
